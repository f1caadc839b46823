"""Which memories are meant, everywhere they stand; taking them out, keeping them until their deadline, and putting them back."""
