"""The bundled GPU kernels, their shapes and their references."""
