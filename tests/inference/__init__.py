"""The C++ library for inference, by way of a binding that has nothing of its own."""
