"""What a sweep takes and can show, estimated before it starts. May import `engine` and below."""
