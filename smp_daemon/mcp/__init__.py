"""`smp mcp`: agents ask and record over the Model Context Protocol. Optional: nothing else imports this package."""
