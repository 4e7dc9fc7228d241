"""Dataset `car_street`: six streets, 288 scenarios, and the scripts that generate them."""
