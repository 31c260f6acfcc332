"""Write folders of Arrow files: jobs, their commits, and partitions."""
