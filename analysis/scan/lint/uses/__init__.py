"""What calls and assignments of libraries mean: draws, operations, training, settings, devices."""
