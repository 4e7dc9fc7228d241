"""Services of accounts: who a request is, and what operators and maintainers decide about others."""
