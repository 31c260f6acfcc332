"""Arrow Flight: a connector for the scheme `grpc`, and a server. The extra `flight` is needed."""
