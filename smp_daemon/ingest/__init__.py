"""Files flow in: watcher, debounce, inbox, indexer."""
