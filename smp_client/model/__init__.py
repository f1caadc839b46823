"""Plain values that every other layer shares. Nothing here touches a file."""
