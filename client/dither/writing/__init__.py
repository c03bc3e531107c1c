"""What commands write: pages in HTML and Markdown, to a file or to stdout."""
