"""The node agent: joins a cluster over HTTP, obeys it over NATS. No Django inside."""
