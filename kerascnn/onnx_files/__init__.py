"""Models as ONNX files, and ONNX files as models.

Nothing here is imported before a file is read or written.
"""
