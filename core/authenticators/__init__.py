"""Authenticators: the libraries and servers that tell who a person is. Passwords, passkeys and OpenID Connect."""
