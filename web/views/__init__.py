"""Views of the web page: a module for each kind of thing that it shows; the application serves their blueprints."""
