"""Where bytes live: buffers, validity bitmaps, and regions that processes share."""
