//! Complete small programs; each file in `examples/` is one.
