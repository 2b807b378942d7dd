"""Tables, images and texts become bags; results become files."""
