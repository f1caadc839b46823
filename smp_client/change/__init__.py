"""The ways in which memories change and move: holdings, selection, change, move and restore."""
