"""What messages carry: buffers on the way in and out."""
