"""Tables beside published syntheses: the error of one-, two- and three-way shares of census records."""
