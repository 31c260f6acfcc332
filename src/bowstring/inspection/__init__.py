"""Looking into a file or a stream and explaining what is there; nothing here prints."""
