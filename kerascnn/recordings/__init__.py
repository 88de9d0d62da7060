"""What a model computes, recorded with open axes: for ONNX files, and for the C++ library."""
