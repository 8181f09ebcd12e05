"""The messages of proto/forebay/v1, one module for each file; written by tools/gen_python_messages.py."""
