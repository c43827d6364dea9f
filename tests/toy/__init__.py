"""The smallest family there is: element-wise scale. One module, one source, no line elsewhere."""
