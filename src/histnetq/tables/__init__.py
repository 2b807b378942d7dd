"""Reading of tables, images and texts into bags, and writing of result files."""
