model glm-4.5 glm-4.5-air
