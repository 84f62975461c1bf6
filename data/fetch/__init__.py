"""Downloads: which files there are, HTTP with retries and resume, checksums, archives."""
