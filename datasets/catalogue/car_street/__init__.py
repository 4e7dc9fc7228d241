"""The data set `car_street`: six small streets, 288 scenarios, and the scripts that make them."""
