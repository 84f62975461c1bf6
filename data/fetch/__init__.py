"""Download files: what exists, HTTP with retries and resume, checksums, archives."""
