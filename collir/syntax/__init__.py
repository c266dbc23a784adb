"""The textual language: reader (text to IR), writer (IR to text), and diagnostics with carets."""
