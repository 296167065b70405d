"""ORDERS: what operators asked the nodes to do, durable until each node has obeyed."""
