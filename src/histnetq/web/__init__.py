"""The page in the browser and the service behind it: `histnetq.web.server.serve` runs both."""
