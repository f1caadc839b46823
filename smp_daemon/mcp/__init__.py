"""`smp mcp`: agents ask and record over the Model Context Protocol. Nothing else imports this."""
