"""What programs ask of models and rules."""
