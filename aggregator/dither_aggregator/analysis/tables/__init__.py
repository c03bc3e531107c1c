"""Tables of several columns, from their measured pairs: raw pair tables, combined margins, a synthesis of all cells."""
