"""Runs plans: devices, loaded modules, workspaces, the cache on disk."""
