"""What models are evaluated on, and whether they have learnt from it."""
