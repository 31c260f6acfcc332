"""Operations on whole files and streams: append, concatenate, scan, recover."""
