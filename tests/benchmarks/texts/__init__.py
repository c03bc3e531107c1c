"""Fresh texts beside other ways to look candidates up."""
