model glm-5
