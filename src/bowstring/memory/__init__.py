"""Memory: buffers, validity bitmaps, and regions shared between processes."""
