"""HTML reports about a quantifier and its estimates."""
