"""Arrow Flight: a connector for the scheme `grpc`, and a server. The extra `flight` is needed."""

from bowstring_networks.flight.server import FlightServer as FlightServer
