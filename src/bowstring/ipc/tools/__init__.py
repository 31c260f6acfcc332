"""What is done to whole files and streams: joined, added to, scanned, recovered."""
