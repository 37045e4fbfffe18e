model glm-6
