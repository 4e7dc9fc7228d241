"""Results: outcomes, scores, their statistics, tables and selections."""
