"""What a request asks of the router and what it gets; nothing here knows Django."""
