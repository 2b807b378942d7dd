"""How encoders and heads start: from labels, known or implied by proportions."""
