"""Kernels: one operation a folder, each with a torch reference and a Triton kernel."""
