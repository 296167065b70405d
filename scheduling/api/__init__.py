"""What is wished for, over HTTP: LocalAI's rules, and the models it keeps in files."""
