"""Code that depends on the version of torch, on its compilers, or on the machine."""
