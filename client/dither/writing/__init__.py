"""The pages that commands write, in HTML and Markdown, to a file or to stdout."""
